# What zsh's completion offers for $LINE, as far as it is typed. Only a shell on a terminal completes: it is given one, and a tabulator; what
# it would show is written down. The script is found by its name, as an installed one is.
qosm completions zsh > $FOLDER/_qosm
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PROMPT=; fpath=($FOLDER \$fpath); autoload -Uz compinit; compinit -u -D"
zpty -w shell 'compadd() { [[ "$*" == *-[OAD]\ * ]] || { local -a shown; builtin compadd -O shown "$@"; print -l -- $shown >> $FOLDER/found }
builtin compadd "$@" }'
zpty -w shell 'collect() { _main_complete; compstate[insert]=; compstate[list]=; print > $FOLDER/done }'
zpty -w shell 'zle -C collected complete-word collect; bindkey "^I" collected'
zpty -w -n shell "$LINE"$'\t'
repeat 600 { [[ -e $FOLDER/done ]] && break; sleep 0.1 }
zpty -d shell
cat $FOLDER/found
