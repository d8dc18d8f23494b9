case ${ZSH_VERSION-} in ?*) \printf '%s\0' '@MARK@' shell other total 10 '@MARK@'; \exit ;; esac
# ENV names a file by a few kinds of expansion. It is taken apart here and never evaluated.
_@MARK@_file=${ENV-} _@MARK@_tail=
while case $_@MARK@_file in '~/'*|'$'*) ;; *) ! \: ;; esac; do
  case $_@MARK@_file in
    '~/'*) _@MARK@_file=${HOME-}${_@MARK@_file#'~'}; break ;;
    '${'*) _@MARK@_rest=${_@MARK@_file#'${'} ;;
    *) _@MARK@_rest=${_@MARK@_file#'$'} ;;
  esac
  _@MARK@_name=${_@MARK@_rest%%[!A-Za-z0-9_]*}
  case $_@MARK@_name in ''|[0-9]*) break ;; esac
  _@MARK@_rest=${_@MARK@_rest#"$_@MARK@_name"}
  \eval "_@MARK@_value=\${$_@MARK@_name-}"
  case $_@MARK@_file in '${'*)
    case $_@MARK@_rest in
      '}'*) _@MARK@_rest=${_@MARK@_rest#'}'} ;;
      '%%:*}'*) _@MARK@_value=${_@MARK@_value%%:*}; _@MARK@_rest=${_@MARK@_rest#'%%:*}'} ;;
      ':-'*'}'*)
        case $_@MARK@_value in '')
          _@MARK@_tail=${_@MARK@_rest##*'}'}$_@MARK@_tail
          _@MARK@_file=${_@MARK@_rest#':-'}; _@MARK@_file=${_@MARK@_file%'}'*}
          continue ;;
        esac
        _@MARK@_rest=${_@MARK@_rest##*'}'} ;;
      *) break ;;
    esac ;;
  esac
  _@MARK@_file=$_@MARK@_value$_@MARK@_rest
  break
done
_@MARK@_file=$_@MARK@_file$_@MARK@_tail
case $_@MARK@_file in ''|/*) ;; *) _@MARK@_file=./$_@MARK@_file ;; esac
if (\unset -f test; \test -f "$_@MARK@_file" && \test -r "$_@MARK@_file"); then \. "$_@MARK@_file"; fi
