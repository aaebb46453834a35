# Sourced by apply, revert and irq_affinity: settings that are files below
# $root, written one by one, read back, told, and remembered.
#
# POSIX sh and what busybox has of awk, dd and sed: this also runs where there
# is little else.
# shellcheck shell=sh

# Files with what was there before, one line a setting: path|before|what we set.
# In /run, because a reboot undoes settings and memory of them alike.
saved_in=run/sluice

fail_use() {
  echo "${0##*/}: $*" >&2
  exit 2
}

# Of whoever sources this.
root=
dry_run=

# The value of a setting on one line; values of several fields keep the tabs
# that the kernel puts between them. No more than the kernel ever gives, for
# something else may be there in its place.
read_setting() {
  dd if="$root/$1" bs=4096 count=1 2>/dev/null
}

# Without what does not matter: white space, and in masks of CPUs commas and
# leading zeros.
plain() {
  case $1 in
    *_cpus | */smp_affinity)
      printf '%s\n' "$2" | sed 's/[, ]//g; s/^0*\(.\)/\1/'
      ;;
    *) printf '%s\n' "$2" | awk '{ $1 = $1; print }' ;;
  esac
}

# is_same PATH VALUE VALUE
is_same() {
  [ "$(plain "$1" "$2")" = "$(plain "$1" "$3")" ]
}

# Sets `trouble` to the reason if it cannot be written or is not as it was
# written: the kernel takes some values and makes something else of them.
write_setting() {
  # dd names the error; a shell's own printf may not.
  # In one piece: the kernel takes each write for a value of its own.
  trouble=$(printf '%s\n' "$2" | dd bs=4096 of="$root/$1" 2>&1 >/dev/null) ||
    {
      trouble="refused: $(printf '%s\n' "$trouble" | sed -n 's/.*: //p' |
        head -n 1)"
      return 1
    }
  if ! back=$(read_setting "$1"); then
    trouble="written, but it cannot be read back"
    return 1
  fi
  is_same "$1" "$back" "$2" && return 0
  trouble="reads back \"$back\""
  return 1
}

# tell NAME BEFORE AFTER RESULT
tell() {
  printf '  %-38s %-28s %-28s %s\n' "$1" \
    "$(printf '%s' "$2" | tr '\t' ' ')" "$(printf '%s' "$3" | tr '\t' ' ')" "$4"
}

# remember FILE CHANGES: adds what is there before a change to what is saved. A
# setting that is saved already keeps its first value, so that revert goes back
# to before the first change. Either all of it is saved or nothing.
remember() {
  mkdir -p "$root/$saved_in" || return 1
  [ -e "$1" ] || true >"$1" || return 1
  awk -F'|' -v OFS='|' '
    !saved { before[$1] = $2; set[$1] = $3; order[++n] = $1; next }
    { if (!($1 in before)) { before[$1] = $2; order[++n] = $1 } set[$1] = $3 }
    END { for (i = 1; i <= n; i++)
            print order[i], before[order[i]], set[order[i]] }
  ' saved=0 "$1" saved=1 "$2" >"$1.new" && mv "$1.new" "$1"
}

# carry_out PLAN SAVED: does what the lines name|path|now|then|what of a plan say,
# of which "set" is still to be written, and tells each. Where there is something
# to write, what is there now is saved first. Counts `changed` and `troubles`: a
# `what` that begins with a capital letter is one.
carry_out() {
  if [ -z "$dry_run" ] && grep -q '|set$' "$1"; then
    awk -F'|' -v OFS='|' '$5 == "set" { print $2, $3, $4 }' "$1" >"$1.changes"
    remember "$2" "$1.changes" ||
      fail_use "cannot save what is there in $2; nothing was changed"
  fi
  changed=0
  troubles=0
  while IFS='|' read -r name path now new what; do
    if [ "$what" = set ]; then
      if [ -n "$dry_run" ]; then
        what="would change"
        changed=$((changed + 1))
      elif write_setting "$path" "$new"; then
        what=changed
        changed=$((changed + 1))
      else
        what="NOT SET: $trouble"
      fi
    fi
    case $what in
      [A-Z]*) troubles=$((troubles + 1)) ;;
    esac
    tell "$name" "$now" "$new" "$what"
  done <"$1"
}

# put_back FILE: undoes what is saved there, the last first, and tells each. What
# could not be undone stays saved. Returns 1 then.
put_back() {
  if [ ! -s "$1" ]; then
    echo "nothing to revert: ${1#"$root"/} is not there"
    return 0
  fi
  # A dry run needs no right to write.
  left=$1.left
  if [ -n "$dry_run" ]; then left=/dev/null; fi
  # Not ":", of which POSIX has a failed redirection end the shell.
  true >"$left" || fail_use "cannot write $left; nothing was changed"
  failed=0
  # From the last line to the first.
  reversed=$(awk '{ line[NR] = $0 } END { for (i = NR; i; i--) print line[i] }' \
    "$1")
  while IFS='|' read -r path before set; do
    name=$(name_of "$path")
    if ! now=$(read_setting "$path"); then
      tell "$name" "-" "$before" "missing: cannot be put back"
      echo "$path|$before|$set" >>"$left"
      failed=1
      continue
    fi
    note=
    if ! is_same "$path" "$now" "$set" && ! is_same "$path" "$now" "$before"; then
      note=", though it was changed from \"$set\" since"
    fi
    if is_same "$path" "$now" "$before"; then
      tell "$name" "$now" "$before" "is so already"
    elif [ -n "$dry_run" ]; then
      tell "$name" "$now" "$before" "would be put back$note"
    elif write_setting "$path" "$before"; then
      tell "$name" "$now" "$before" "put back$note"
    else
      tell "$name" "$now" "$before" "NOT put back: $trouble"
      echo "$path|$before|$set" >>"$left"
      failed=1
    fi
  done <<END
$reversed
END
  if [ -n "$dry_run" ]; then return "$failed"; fi
  if [ "$failed" = 0 ]; then
    rm "$left" "$1"
    return 0
  fi
  # As they were: the first first.
  awk '{ line[NR] = $0 } END { for (i = NR; i; i--) print line[i] }' "$left" \
    >"$1.new" && mv "$1.new" "$1" && rm "$left"
  return 1
}
