case ${BASH_VERSION-} in '') \printf '%s\0' '@MARK@' shell other total 10 '@MARK@'; \exit ;; esac
# That this runs at all says that the shell takes the options of bash.
\printf x
# What bash reads for a login, and how to know whether that has read the file of interactive shells already: after each
# file the command that has read it is at hand. Its word is expanded again only where that cannot do anything else.
_@MARK@_read=
\trap 'case $BASH_COMMAND in
  *[!A-Za-z0-9_~/.\"\$\{\}\ -]*|". "*" "*|"source "*" "*) ;;
  ". "*|"source "*) \eval "[[ ${BASH_COMMAND#* } -ef ~/.bashrc ]]" && _@MARK@_read=x ;;
esac' RETURN
[[ ! -r /etc/profile ]] || \. /etc/profile || [[ x ]]
if [[ -r ~/.bash_profile ]]; then \. ~/.bash_profile
elif [[ -r ~/.bash_login ]]; then \. ~/.bash_login
elif [[ -r ~/.profile ]]; then \. ~/.profile; fi || [[ x ]]
if [[ -n ${BASH_ENV-} ]]; then \eval "[[ ! -r \"$BASH_ENV\" ]] || \\. \"$BASH_ENV\""
elif [[ -z $_@MARK@_read && -r ~/.bashrc ]]; then \. ~/.bashrc; fi || [[ x ]]
