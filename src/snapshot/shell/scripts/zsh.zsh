case ${ZSH_VERSION-} in '') \printf '%s\0' '@MARK@' shell other total 10 '@MARK@'; \exit ;; esac
if [[ -r "${ZDOTDIR:-${HOME-}}/.zshrc" ]]; then \. "${ZDOTDIR:-${HOME-}}/.zshrc"; fi
_@MARK@_options=("${(@kv)options[@]}")
options[allexport]=off options[xtrace]=off options[errexit]=off options[errreturn]=off options[unset]=on
options[ksharrays]=off options[shwordsplit]=off options[glob]=on options[kshtypeset]=off options[extendedglob]=off
options[multios]=on options[aliases]=off options[rcexpandparam]=off options[globsubst]=off options[kshglob]=off
options[shglob]=off options[warncreateglobal]=off options[pipefail]=off
# Gathered by expansions and assignments alone, which no function of the profile can stand in for.
_@MARK@_out=(shell zsh options "${(j: :)_@MARK@_options}")
for _@MARK@_name _@MARK@_value in "${(@kv)functions}"; do _@MARK@_out+=(function "$_@MARK@_name" "$_@MARK@_value"); done
for _@MARK@_name _@MARK@_value in "${(@kv)aliases}"; do _@MARK@_out+=(alias "$_@MARK@_name" "$_@MARK@_value"); done
for _@MARK@_name _@MARK@_value in "${(@kv)galiases}"; do _@MARK@_out+=(global-alias "$_@MARK@_name" "$_@MARK@_value"); done
for _@MARK@_name _@MARK@_value in "${(@kv)saliases}"; do _@MARK@_out+=(suffix-alias "$_@MARK@_name" "$_@MARK@_value"); done
for _@MARK@_name in "${(@k)parameters[(R)*export*]}"; do
  _@MARK@_type=$parameters[$_@MARK@_name]
  if [[ $_@MARK@_type = array* || $_@MARK@_type = association* ]]; then continue; fi
  _@MARK@_out+=(export "$_@MARK@_name" "${(P)_@MARK@_name}")
done
for _@MARK@_name in "${(@k)parameters[(R)array*]}"; do
  if [[ $_@MARK@_name = _@MARK@_* ]]; then continue; fi
  _@MARK@_type=$parameters[$_@MARK@_name]
  if [[ $_@MARK@_name != fpath && ( $_@MARK@_type = *special* || $_@MARK@_type = *tied* ) ]]; then continue; fi
  _@MARK@_value=("${(@P)_@MARK@_name}")
  _@MARK@_out+=(array "$_@MARK@_name" "$_@MARK@_type" $#_@MARK@_value "${_@MARK@_value[@]}")
done
for _@MARK@_name in "${(@k)parameters[(R)association*]}"; do
  _@MARK@_type=$parameters[$_@MARK@_name]
  if [[ $_@MARK@_type = *special* ]]; then continue; fi
  _@MARK@_value=("${(@Pkv)_@MARK@_name}")
  _@MARK@_out+=(array "$_@MARK@_name" "$_@MARK@_type" $#_@MARK@_value "${_@MARK@_value[@]}")
done
if case x in x) ;; esac </dev/fd/0; then _@MARK@_out+=(descriptors ''); fi
if (( ! ${+functions[eval]} )); then _@MARK@_out+=(evaluator eval)
elif (( ! ${+functions[builtin]} )); then _@MARK@_out+=(evaluator 'builtin eval'); fi
if (( ! ${+functions[builtin]} )); then _@MARK@_remove=(builtin unfunction)
elif (( ! ${+functions[unfunction]} )); then _@MARK@_remove=(unfunction)
elif (( ! ${+functions[unhash]} )); then _@MARK@_remove=(unhash -f)
else _@MARK@_remove=(unset -f); fi
(
"${_@MARK@_remove[@]}" print wc TRAPDEBUG TRAPERR TRAPZERR
# Read as they will be at the restore.
if [[ -z "$( { functions=("${(@kv)functions[@]}"); } 2>&1 )" ]]; then _@MARK@_out+=(readable ''); fi
_@MARK@_out+=(wc "$(\wc -c </dev/null)")
# A background job may print in between. Lengths are in bytes.
options[multibyte]=off _@MARK@_total=0
for _@MARK@_value in "${_@MARK@_out[@]}"; do (( _@MARK@_total += $#_@MARK@_value )); done
\print -rN -- '@MARK@' "${_@MARK@_out[@]}" total $_@MARK@_total '@MARK@'
)
