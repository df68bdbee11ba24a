#!/bin/sh
# Generates the Python modules of Podward's gRPC interface from `proto/`, in the given folder or beside this script.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
out=${1:-$here}
proto=${PODWARD_PROTO:-$here/../../../proto}
exec "${PYTHON:-python3}" -m grpc_tools.protoc -I "$proto" --python_out="$out" --grpc_python_out="$out" \
    podward/v1/hook.proto podward/v1/lifecycle.proto
