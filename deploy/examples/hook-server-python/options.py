"""What both programs are told on the command line."""

import argparse


def parser(description):
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--backends", required=True, help="what the balancer is to serve: written here")
    options.add_argument("--report", required=True, help="what the balancer does: written by the balancer, read here")
    options.add_argument("--podward", metavar="HOST:PORT", help="Podward's gRPC address")
    options.add_argument("--podward-ca", metavar="FILE", help="certificates that Podward's is checked against")
    options.add_argument("--token-file", metavar="FILE", help="the token that says to Podward who this is")
    options.add_argument("--hook-name", default="example-balancer", help="the name of the hook")
    options.add_argument(
        "--pod-label",
        metavar="KEY=VALUE",
        type=_label,
        action="append",
        default=[],
        help="a label of the pods that it is for; may be given several times",
    )
    return options


def read(path, mode="r"):
    with open(path, mode, encoding=None if "b" in mode else "utf-8") as file:
        return file.read()


def _label(text):
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError("write it as KEY=VALUE")
    return key, value
