_@MARK@_set=$SHELLOPTS _@MARK@_shopt=$BASHOPTS _@MARK@_posix=${POSIXLY_CORRECT+=}${POSIXLY_CORRECT-} POSIXLY_CORRECT=y
# One statement, read before any of it runs. In POSIX mode the special builtins are found before functions; what else
# is needed runs in subshells that have lost the functions of its name.
{
\trap - DEBUG ERR RETURN
\set +aekuvx -f
IFS=$' \t\n'
_@MARK@_functions=$(\unset -f declare set shopt @WITHHELD@ && \unset -v POSIXLY_CORRECT && \declare -f) || \exit
_@MARK@_tools=$(\unset -f typeset @WITHHELD@ && \unset -v POSIXLY_CORRECT && { \typeset -f declare set shopt || [[ x ]]; }) || \exit
_@MARK@_attributes=$(\unset -f declare @WITHHELD@ && \unset -v POSIXLY_CORRECT && \declare -F) || \exit
(
\unset -f alias compgen declare eval printf shopt wc
\unset -v POSIXLY_CORRECT
\printf '%s\0' '@MARK@' shell bash set "$_@MARK@_set" shopt "$_@MARK@_shopt"
if case x in x) ;; esac </dev/fd/0; then \printf 'descriptors\0\0'; fi
\printf '%s\0' functions "$_@MARK@_functions" tools "$_@MARK@_tools" attributes "$_@MARK@_attributes"
(LC_ALL=C; \printf '%s\0' length "${#_@MARK@_functions}")
# Parsed as it will be at the restore, and not run.
if (\shopt -u expand_aliases; \shopt -s extglob; \eval "_@MARK@ () { [[ x ]]
$_@MARK@_functions
$_@MARK@_tools
}"); then \printf 'readable\0\0'; fi
\printf 'set-names\0'; \shopt -op; \printf '\0shopt-names\0'; \shopt -p; \printf '\0aliases\0'; \alias -p; \printf '\0'
IFS=$'\n'
for _@MARK@_name in $(\declare -ap; \declare -Ap); do
  case $_@MARK@_name in 'declare -'*) ;; *) continue ;; esac
  _@MARK@_name=${_@MARK@_name#declare -* }
  _@MARK@_name=${_@MARK@_name%%=*}
  case $_@MARK@_name in *[!A-Za-z0-9_]*|'') continue ;; esac
  \printf 'array\0%s\0' "$_@MARK@_name"; \declare -p "$_@MARK@_name"; \printf '\0'
done
case $_@MARK@_posix in =*) POSIXLY_CORRECT=${_@MARK@_posix#=} ;; esac
for _@MARK@_name in $(\compgen -e); do
  if [[ -v $_@MARK@_name ]]; then \printf 'export\0%s\0%s\0' "$_@MARK@_name" "${!_@MARK@_name}"; fi
done
\printf '%s\0' wc "$(\printf '%s' "$_@MARK@_functions" | \wc -c)" '@MARK@'
)
}
