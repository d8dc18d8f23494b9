case ${BASH_VERSION-} in '') \printf '%s\0' '@MARK@' shell other total 10 '@MARK@'; \exit ;; esac
[[ -n ${BASH_ENV-} || ! -r ~/.bashrc ]] || \. ~/.bashrc || [[ x ]]
