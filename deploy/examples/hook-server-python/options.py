"""The command line of both programs."""

import argparse


def parser(description):
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--backends", required=True, help="the file for the backends, written by this program")
    options.add_argument("--report", required=True, help="the file with the state, written by the balancer")
    options.add_argument("--podward", metavar="HOST:PORT", help="the gRPC address of Podward")
    options.add_argument("--podward-ca", metavar="FILE", help="PEM certificates of Podward's authorities")
    options.add_argument("--token-file", metavar="FILE", help="the token that authenticates this program to Podward")
    options.add_argument("--hook-name", default="example-balancer", help="the name of the hook")
    options.add_argument(
        "--pod-label",
        metavar="KEY=VALUE",
        type=_label,
        action="append",
        default=[],
        help="a label of the pods that the hook selects; can be repeated",
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
