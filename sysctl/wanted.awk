# What a profile wants on this machine, from its lines "key = value" and the
# comments above them: key|rule|value|why it may be missing.
# -v connections=N  -v memory_kib=N (0: unknown)  -v page_kib=N
#
# The value is "?" where it depends on a memory that is not known.

function at_most(value, most) { return most > 0 && value > most ? most : value }

function round_up(value) { return value == int(value) ? value : int(value) + 1 }

function scaled(value,   n, field, words, i, unit, most, result) {
  if (scale == "") return value
  n = split(scale, words, " ")
  if (words[1] == "connections")
    return sprintf("%.0f", round_up(value * connections / 1000000))
  if (memory_kib == 0) return "?"
  unit = words[1] == "memory-pages" ? page_kib : 1
  most = n > 2 && words[n - 1] == "most" ? words[n] : 0
  for (i = 2; i <= (most ? n - 2 : n); i++) {
    field = int(memory_kib * words[i] / 100 / unit)
    result = result (i > 2 ? " " : "") sprintf("%.0f", at_most(field, most))
  }
  return result
}

/^# rule: / { rule = substr($0, 9) }
/^# scale: / { scale = substr($0, 10) }
/^# optional: / { optional = substr($0, 13) }
/^[a-z]/ {
  split($0, side, " = ")
  print side[1] "|" rule "|" scaled(side[2]) "|" optional
  rule = scale = optional = ""
}
