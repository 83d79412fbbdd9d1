#!/usr/bin/env bash
# Install NVIDIA DALI and its TensorFlow plugin beside an installed TensorFlow.
#
# Usage: data_generators/install_dali.sh [PYTHON]
#   PYTHON: the interpreter of the environment to install into; default: python
#
# The plugin is compiled against the TensorFlow that is there, so run this again after TensorFlow
# was upgraded. It takes g++ and CUDA headers: those under CUDA_HOME or /usr/local/cuda if there
# are any, otherwise those of two small wheels. Neither a GPU nor a driver is needed.
set -euo pipefail

python="${1:-python}"
requirements="$(dirname "$0")/../requirements-dali.txt"
compiler="${CXX:-g++}"
export TF_CPP_MIN_LOG_LEVEL=2

fail() {
    echo "Error: $1" >&2
    exit 1
}

plugin_loads() {
    "$python" -c "import nvidia.dali.plugin.tf"
}

# Everything that requirements-dali.txt names, but the plugin
others() {
    grep -v "nvidia-dali-tf-plugin" "$requirements"
}

has_headers() {
    [ -f "$1/include/cuda_runtime_api.h" ] && [ -f "$1/include/crt/host_defines.h" ]
}

command -v "$python" >/dev/null || fail "$python: no such interpreter; pass one as the argument"
"$python" -c "import tensorflow" 2>/dev/null ||
    fail "$python has no TensorFlow; first run: $python -m pip install -r requirements.txt"
if plugin_loads 2>/dev/null; then
    echo "DALI and its TensorFlow plugin are installed already."
    exit 0
fi
command -v "$compiler" >/dev/null ||
    fail "$compiler not found; the plugin is compiled: apt-get install g++, or set CXX"

"$python" -m pip install setuptools wheel -r <(others)
packages="$("$python" -c "import sysconfig; print(sysconfig.get_path('purelib'))")"
cuda="${CUDA_HOME:-/usr/local/cuda}"
has_headers "$cuda" || cuda="$packages/nvidia/cu13"
# Not from pip's cache, which may hold a plugin compiled against another TensorFlow
CUDA_HOME="$cuda" "$python" -m pip install --no-build-isolation --no-cache-dir --no-deps \
    --force-reinstall "$(grep "nvidia-dali-tf-plugin" "$requirements")"

plugin_loads || fail "the plugin does not load, see above; DATA_GENERATOR_TYPE=TF_GENERATOR works"
echo "DALI and its TensorFlow plugin are installed."
