case ${BASH_VERSION-} in '')
_@MARK@_options=$(\set -o)
\set +aefuvx
_@MARK@_exports=$(\export -p)
(
\unset -f alias printf wc
\printf '%s\0' '@MARK@' shell sh options "$_@MARK@_options" exports "$_@MARK@_exports"
if (\: </dev/fd/0); then \printf 'descriptors\0\0'; fi
\printf 'aliases\0'; \alias; \printf '\0'
\printf '%s\0' wc "$(\printf '%s' "$_@MARK@_exports" | \wc -c)" '@MARK@'
)
\exit ;;
esac
