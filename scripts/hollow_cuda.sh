#!/bin/sh
# PyPI's torch names CUDA libraries (2.6 GB) that a machine without a GPU never calls, yet does not load without them.
# This puts empty ones in their place: each function returns 1, an error in every one of those interfaces.
# Needs gcc and binutils. Usage: hollow_cuda.sh SITE_PACKAGES, after an install without the packages nvidia-*.
set -eu
cd "$1/torch/lib"
needed=$(objdump -p ./*.so | awk '/NEEDED/ {print $2}' | grep -E '^lib(cu|nv|nccl)' | grep -vE '^lib(cuda|cudart)\.' | sort -u)
functions=$(nm -D --undefined-only ./*.so | awk '{sub(/@.*/, "", $2); print $2}' |
  grep -E '^(cublas|cudnn|cufft|curand|cusparse|cusolver|nccl|nvrtc|nvshmem|cuFile|cupti)' | sort -u)
for library in $needed; do
  # The version names that torch asks of this library: it has to define each.
  versions=$(objdump -p ./*.so | awk -v library="$library:" '
    /required from/ {mine = ($3 == library); next} NF != 4 {mine = 0} mine {print $4}' | sort -u)
  script=$(mktemp)
  for version in $versions; do echo "$version { global: *; };"; done >"$script"
  echo "$functions" | sed 's/.*/int &(void) { return 1; }/' |
    gcc -shared -fPIC -nostdlib -x c -Wl,-soname,"$library" ${versions:+-Wl,--version-script,"$script"} -o "$library" -
  strip "$library"
  rm "$script"
done
