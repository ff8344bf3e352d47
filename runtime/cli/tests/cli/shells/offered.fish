# What fish's completion offers for $LINE, as far as it is typed; what it explains stands behind a tabulator.
qosm completions fish | source
complete --do-complete "$LINE" | string replace --regex '\t.*' ''
# It fails where there was nothing to take away.
true
