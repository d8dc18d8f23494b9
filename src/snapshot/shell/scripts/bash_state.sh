_@MARK@_set=$SHELLOPTS _@MARK@_shopt=$BASHOPTS _@MARK@_posix=${POSIXLY_CORRECT+=}${POSIXLY_CORRECT-} POSIXLY_CORRECT=y
# One statement, read before any of it runs. In POSIX mode the special builtins are found before functions; what else
# is needed runs in subshells that have lost the functions of its name.
{
\trap - DEBUG ERR RETURN
\set +aekuvx -f
IFS=$' \t\n'
_@MARK@_functions=$(\unset -f declare set shopt @WITHHELD@ && \unset -v POSIXLY_CORRECT && { \declare -F; \declare -f; }) || \exit
_@MARK@_tools=$(\unset -f typeset @WITHHELD@ && \unset -v POSIXLY_CORRECT && { \typeset -f declare set shopt || [[ x ]]; }) || \exit
(
\unset -f alias compgen declare eval printf shopt wc
\unset -v POSIXLY_CORRECT
IFS=$'\n'
_@MARK@_out=(shell bash set "$_@MARK@_set" shopt "$_@MARK@_shopt" names "$(\shopt -op; \shopt -p; \alias -p)")
_@MARK@_out+=(functions "$_@MARK@_functions" tools "$_@MARK@_tools")
if case x in x) ;; esac </dev/fd/0; then _@MARK@_out+=(descriptors ''); fi
# Parsed as it will be at the restore, and not run.
if (\shopt -u expand_aliases; \shopt -s extglob; \eval "_@MARK@ () { [[ x ]]
$_@MARK@_functions
$_@MARK@_tools
}"); then _@MARK@_out+=(readable ''); fi
for _@MARK@_name in $(\declare -ap; \declare -Ap); do
  case $_@MARK@_name in 'declare -'*) ;; *) continue ;; esac
  _@MARK@_name=${_@MARK@_name#declare -* }
  _@MARK@_name=${_@MARK@_name%%=*}
  case $_@MARK@_name in
    *[!A-Za-z0-9_]*|''|_@MARK@_*|BASH_*|DIRSTACK|FUNCNAME|GROUPS|PIPESTATUS) continue ;;
  esac
  _@MARK@_out+=(array "$_@MARK@_name" "$(\declare -p "$_@MARK@_name")")
done
case $_@MARK@_posix in =*) POSIXLY_CORRECT=${_@MARK@_posix#=} ;; esac
for _@MARK@_name in $(\compgen -e); do
  if [[ -v $_@MARK@_name ]]; then _@MARK@_out+=(export "$_@MARK@_name" "${!_@MARK@_name}"); fi
done
_@MARK@_out+=(wc "$(\wc -c </dev/null)")
# A background job may print in between. Lengths are in bytes.
LC_ALL=C _@MARK@_total=0
for _@MARK@_name in "${_@MARK@_out[@]}"; do _@MARK@_total=$((_@MARK@_total + ${#_@MARK@_name})); done
\printf '%s\0' '@MARK@' "${_@MARK@_out[@]}" total "$_@MARK@_total" '@MARK@'
)
}
