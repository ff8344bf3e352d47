# What bash's completion offers for $LINE, as far as it is typed.
source <(qosm completions bash)
read -ra COMP_WORDS <<< "$LINE"
[[ $LINE == *' ' ]] && COMP_WORDS+=('')
COMP_LINE=$LINE COMP_POINT=${#LINE} COMP_TYPE=9 COMP_KEY=9 COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
registered=$(complete -p qosm)
function=${registered##*-F }
"${function%% *}" qosm "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
