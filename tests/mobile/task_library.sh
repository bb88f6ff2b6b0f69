#!/bin/sh
# The Task Library's readers (tflite-support 0.4.4) in an environment of their own, which DIR/python runs:
#
#     sh tests/mobile/task_library.sh DIR
#
# They need Python 3.11, numpy 1, protobuf 3.20 and Debian's libusb-1.0-0, which is unpacked into DIR where the system has none.
# Status 3, and a line that says why: something of that cannot be had here.
set -eu
directory=$1
lacks() {
    echo "$1" >&2
    exit 3
}
python=$(command -v python3.11) || lacks "needs Python 3.11"
"$python" -m venv "$directory/venv" || lacks "Python 3.11 makes no venv"
"$directory/venv/bin/python" -m pip install -q tflite-support==0.4.4 'numpy<2' 'protobuf<3.21' \
    || lacks "pip cannot install tflite-support 0.4.4"
if ! ldconfig -p 2> /dev/null | grep -q libusb-1.0.so.0; then
    mkdir "$directory/debian"
    (cd "$directory/debian" && apt-get download -q libusb-1.0-0 && dpkg -x libusb-1.0-0_*.deb .) \
        || lacks "needs libusb-1.0-0, and apt-get cannot download it"
fi
libraries=$(find "$directory/debian" -name libusb-1.0.so.0 -exec dirname {} \; 2> /dev/null || true)
cat > "$directory/python" << END
#!/bin/sh
LD_LIBRARY_PATH="$libraries\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}" exec "$directory/venv/bin/python" "\$@"
END
chmod +x "$directory/python"
"$directory/python" -c "from tflite_support.task import text" || lacks "tflite-support 0.4.4 cannot be imported"
