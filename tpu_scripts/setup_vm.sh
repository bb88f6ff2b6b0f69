#!/usr/bin/env bash
# Set up a TPU VM: a virtual environment with TensorFlow for TPUs and kerasbert.
#
#   bash tpu_scripts/setup_vm.sh KERASBERT      a wheel or a checkout (kerasbert is not on the package index)
#
# libtpu is pinned: the newest one aborts when this TensorFlow imports it. Neither tensorflow-text nor keras-nlp can stand beside
# tensorflow-tpu, and pretraining needs neither; fine-tuning tokenizes in pure Python, export runs on a machine with a CPU.
# PYTHON and VENV choose the interpreter and the folder.
#
# Tested with a pip that writes down what it is asked for; never run on a TPU VM.
set -euo pipefail

kerasbert=${1:?give a wheel (pip wheel --no-deps -w dist . makes one) or a checkout of kerasbert}
venv=${VENV:-$HOME/kerasbert-venv}

"${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/pip" install --upgrade pip
"$venv/bin/pip" install 'tensorflow-tpu==2.20.0' 'libtpu==0.0.14'
"$venv/bin/pip" install "${kerasbert}[tpu]"
# what would fail in the middle of the night fails here: the chips are there and TensorFlow sees them
if [ "${CHECK:-1}" = 1 ]; then
  "$venv/bin/python" -c "import tensorflow as tf; chips = tf.config.list_logical_devices('TPU') or \
tf.config.list_physical_devices('TPU'); print(len(chips), 'TPU devices'); raise SystemExit(not chips)"
fi
echo "ready: source $venv/bin/activate"
