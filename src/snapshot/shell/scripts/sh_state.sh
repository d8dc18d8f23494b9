case ${BASH_VERSION-} in '')
_@MARK@_options=$(\set -o)
\set +aefuvx
_@MARK@_exports=$(\export -p)
_@MARK@_aliases=$(\unset -f alias; \alias)
(
\unset -f printf wc
\set -- shell sh options "$_@MARK@_options" exports "$_@MARK@_exports" aliases "$_@MARK@_aliases"
if (\: </dev/fd/0); then \set -- "$@" descriptors ''; fi
\set -- "$@" wc "$(\wc -c </dev/null)"
# A background job may print in between.
_@MARK@_total=0
for _@MARK@_field in "$@"; do _@MARK@_total=$((_@MARK@_total + ${#_@MARK@_field})); done
\printf '%s\0' '@MARK@' "$@" total "$_@MARK@_total" '@MARK@'
)
\exit ;;
esac
