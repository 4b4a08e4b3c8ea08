# SPDX-License-Identifier: Apache-2.0
# Completion for bash of rove's programs. It reads their options and the values of these from PROGRAM --help.

_rove() {
    local program="$1" word="$2" before="$3" help values i
    if [[ "${program##*/}" == rove-run ]]; then
        # The first word that is not an option of rove-run, or the word after --, is another program.
        for ((i = 1; i < COMP_CWORD; i++)); do
            case "${COMP_WORDS[i]}" in
                --) _command_offset $((i + 1)) && return ;;
                --config | --interface | --eal) ((i++)) ;;
                -*) ;;
                *) _command_offset "$i" && return ;;
            esac
        done
    fi
    help="$("$program" --help 2>/dev/null)"
    if [[ "$before" == -* ]]; then
        # "--mode MODE:{target,write}"
        values="$(sed -nE "s/^ +(-[a-z],)?$before [^ ]*\{([^}]*)\}.*/\2/p" <<<"$help")"
        mapfile -t COMPREPLY < <(compgen -W "${values//,/ }" -- "$word")
    fi
    if [[ "$word" == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(grep -oE '^ +(-[a-z],)?--[a-z_-]+' <<<"$help" | tr , ' ')" -- "$word")
    fi
}
complete -o default -F _rove rove-run rove-bridge rove-testpmd rove-tebench rove-sim
