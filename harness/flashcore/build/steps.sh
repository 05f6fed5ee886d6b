#!/bin/sh
# The steps of build.ninja: steps.sh STEP TARGET ... . A target has its name only when it is complete: a step that is
# killed, or whose disk is full, leaves none.
step=$1 target=$2
shift 2
new=$target.$$ folder=$(dirname "$target")

case $step in
make) # COMMAND: it names its output with -o
  "$@" -o "$new" && mv "$new" "$target"
  ;;
compile) # DISASSEMBLER SUITE NVCC...: nvcc's command, in the suite's folder; then the disassembler, if not empty
  keep=$folder/keep.$$ disassembler=$1 compiled=$new
  cd "$2" && shift 2 || exit 1
  # Kept are the preprocessed host code, which nvcc makes of a cubin too because of -MD, and an object's cubin. The log
  # is complete before any product is moved into place, since another build may read it.
  output=$(mkdir -p "$keep" &&
    "$@" -MD -MT variant.o -MF "$folder/variant.d" --keep --keep-dir "$keep" -o "$new" 2>&1)
  code=$?
  if [ $code = 0 ]; then
    printf '%s\n' "$output" >"$folder/variant.log.$$" && mv "$folder/variant.log.$$" "$folder/variant.log" || exit 1
    # Host code that was not kept is unlike any other.
    mv "$keep"/*.cpp4.ii "$folder/host.ii" 2>/dev/null || echo "$folder" >"$folder/host.ii" || exit 1
    for cubin in "$keep"/*.cubin; do
      [ -f "$cubin" ] || continue
      compiled=$folder/variant.cubin
      mv "$cubin" "$compiled" || exit 1
    done
    rm -rf "$keep"
    # One that does not support the arch fails: SASS facts are then unmeasured, and the build continues. The shell writes
    # the file, since nvdisasm exits 0 after a partial write on a full disk.
    if [ -n "$disassembler" ] && output=$("$disassembler" -c -gi "$compiled" 2>/dev/null); then
      printf '%s\n' "$output" >"$new.sass" && mv "$new.sass" "$folder/variant.sass" || rm -f "$new.sass"
    fi
    mv "$new" "$target"
    exit
  fi
  # On a full disk a compiler's message may mislead: tee reports the disk.
  room=$(mktemp)
  head -c 99999 /dev/zero | tee "$keep/room" >"$room"
  rm -rf "$room" "$keep"
  printf '%s\n' "$output"
  # ptxas ends with 255 when it rejects its input; the shell's code of the last signal is 192.
  [ $code -le 128 ] || [ $code -gt 192 ] || echo "ended by signal $((code - 128))"
  exit 1
  ;;
stubs) # COMMAND: links a launch plan; each function that it lacks does nothing and returns 0
  {
    echo 'struct answer { long a, b; }; static struct answer none(void) { return (struct answer){0, 0}; }'
    LC_ALL=C "$@" -Wl,-z,defs,--no-demangle,--warn-unresolved-symbols -o "$new" 2>&1 |
      sed -n "s/.*undefined reference to \`\(\w*\)'.*/\1/p" | sort -u | grep -v '^_*Py' |
      sed 's/.*/struct answer &(void) __attribute__((alias("none")));/'
  } | "$1" -x c -w -fPIC -c -o "$target" - && rm -f "$new"
  ;;
esac
