//! Attempts to read or change what a policy keeps, by everything that a program can think of. Each runs under every
//! policy that it applies to; what counts is that nothing outside was read or changed.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use serde_json::Value;
use test_case::test_case;

use super::{Area, entry, forced, stderr};

/// Shell lines; `$OUT` is outside, `$OUT/secret` must not be read where reading is restricted, nothing there changed.
const SHELL: [&str; 46] = [
    "cat $OUT/secret",
    "cat ../out/secret",
    "cat /proc/self/root$OUT/secret",
    "cat /proc/1/root$OUT/secret",
    "cat /proc/self/cwd/../out/secret",
    "cat /dev/fd/../../..$OUT/secret",
    "for d in / /dev /proc /sys /dev/pts /dev/shm /run /usr /tmp $PWD .; do (cd $d && cat ..$OUT/secret ../..$OUT/secret ../../../../..$OUT/secret); done",
    "for d in /dev /proc /sys /dev/pts /dev/shm; do echo x > $d/../$OUT/n; echo x > $d/../..$OUT/n; done",
    "cd $OUT && cat secret",
    "ln -s $OUT esc; cat esc/secret; echo x > esc/n",
    "ln -s $OUT/secret s; cat s; echo x > s",
    "ln $OUT/secret hard; cat hard; echo x > hard",
    "cp -al $OUT copy; cat copy/secret; echo x >> copy/secret",
    "mkdir d; mv d $OUT/d",
    "mv $OUT/secret .; cat secret",
    "mv $OUT moved",
    "rm -rf $OUT",
    "echo x > $OUT/n",
    "echo x >> $OUT/secret",
    ": > $OUT/secret",
    "truncate -s 0 $OUT/secret",
    "chmod 777 $OUT/secret; chmod 777 $OUT",
    "chown 1:1 $OUT/secret",
    "touch -d 2001-01-01 $OUT/secret",
    "setfattr -n user.x -v y $OUT/secret",
    "mkfifo $OUT/p; mknod $OUT/c c 1 3",
    "mount --bind $OUT . && cat secret",
    "mount -o remount,rw /; echo x > $OUT/n",
    "umount -l $PWD; umount -l /; echo x > $OUT/n",
    "unshare -Urm sh -c 'mount -o remount,rw,bind /; echo x > $OUT/n'",
    "unshare -Urm sh -c 'mount -t tmpfs t /mnt; pivot_root /mnt /mnt; echo x > $OUT/n'",
    "unshare -Ur chroot /proc/1/root cat $OUT/secret",
    "unshare -Urp --fork sh -c 'cat /proc/1/root$OUT/secret; echo x > /proc/1/root$OUT/n'",
    "nsenter -t 1 -a cat $OUT/secret",
    "nsenter --mount=/proc/1/ns/mnt sh -c 'echo x > $OUT/n'",
    "exec 9< $OUT; cat /proc/self/fd/9/secret; echo x > /proc/self/fd/9/n",
    "exec 9< .; cat /proc/self/fd/9/../out/secret; echo x > /proc/self/fd/9/../out/n",
    "find / -xdev -path \"$OUT/*\" -exec cat {} + 2>/dev/null",
    "for p in /proc/[0-9]*; do cat $p/root$OUT/secret $p/cwd/../out/secret; done",
    "tar cf - $OUT | cat",
    "grep -r SECRET $OUT",
    "bash -c 'exec 3<>$OUT/secret; echo x >&3'",
    "dd if=/dev/zero of=$OUT/secret count=1 conv=notrunc",
    "sed -i s/S/T/ $OUT/secret",
    "for d in /dev/sd* /dev/vd* /dev/nvme* /dev/mem /dev/kmem /dev/port; do head -c 1 $d > /dev/null && echo SECRET; done",
    "kill -9 1; kill -9 -1; echo x > $OUT/n",
];

/// Python, with `O` for the place outside, `libc` for system calls, and `call` that raises nothing.
const PYTHON: [&str; 18] = [
    "d = os.open(O, os.O_PATH); os.write(1, open(f'/proc/self/fd/{d}/secret', 'rb').read())",
    "f = os.open(O + '/secret', os.O_PATH); os.write(1, open(f'/proc/self/fd/{f}', 'rb').read())",
    "f = os.open(O + '/secret', os.O_PATH); open(f'/proc/self/fd/{f}', 'w').write('x')",
    "f = os.open(O + '/secret', os.O_RDONLY); os.write(1, os.read(f, 99)); open(f'/proc/self/fd/{f}', 'w').write('x')",
    "f = os.open(O + '/secret', os.O_RDONLY); os.fchmod(f, 0o777); os.utime(f, (1, 1))",
    "os.open(O, os.O_TMPFILE | os.O_WRONLY)",
    "f = os.open('.', os.O_TMPFILE | os.O_WRONLY); os.link(f'/proc/self/fd/{f}', O + '/n', follow_symlinks=True)",
    "libc.linkat(-100, (O + '/secret').encode(), -100, b'h', 0); os.write(1, open('h', 'rb').read())",
    "libc.syscall(316, -100, b'f', -100, (O + '/secret').encode(), 2)",
    "h = ctypes.create_string_buffer(136); h[0:4] = (128).to_bytes(4, 'little'); m = ctypes.c_int(); libc.name_to_handle_at(-100, (O + '/secret').encode(), h, ctypes.byref(m), 0); f = libc.open_by_handle_at(os.open('.', 0), h, 0); os.write(1, os.read(f, 99))",
    "t = libc.syscall(428, -100, b'/', 1); libc.syscall(429, t, b'', -100, b'.', 4); os.write(1, open('.' + O + '/secret', 'rb').read())",
    "f = libc.syscall(430, b'proc', 0); print('SECRET' if libc.syscall(431, f, 6, None, None, 0) == 0 else '')",
    "libc.unshare(0x10000000); libc.unshare(0x20000); libc.mount(b'none', b'/', None, 32 | 4096, None); open(O + '/n', 'w').write('x')",
    "p = os.fork(); p or os._exit(0); libc.ptrace(16, 1, 0, 0) == 0 and print('SECRET')",
    "b = ctypes.create_string_buffer(64); print('SECRET' if libc.syscall(321, 5, b, 64) >= 0 or libc.syscall(298, b, 0, -1, -1, 0) >= 0 and os.geteuid() else '')",
    "print('SECRET' if libc.syscall(438, libc.syscall(434, 1, 0), 3, 0) >= 0 else '')",
    "s = os.stat(O + '/..'); libc.syscall(165, b'/dev/vda', b'/mnt', b'ext4', 0, None) == 0 and print('SECRET')",
    "libc.syscall(246, 0, 0, 0, 0); libc.syscall(175, 0, 0, b''); libc.sethostname(b'SECRET', 6) == 0 and print('SECRET')",
];

/// What outside must stay as it is, metadata included.
fn state(area: &Area) -> Vec<(String, u32, u32, i64, i64, u64)> {
    let mut all = vec![area.out.clone()];
    all.extend(super::names(&area.out).into_iter().map(|name| area.out.join(name)));
    let look = |path: &std::path::PathBuf| {
        let at = path.symlink_metadata().unwrap();
        let name = path.display().to_string();
        (name, at.permissions().mode(), at.uid(), at.mtime(), at.ctime(), at.nlink())
    };
    all.iter().map(look).collect()
}

fn policies(area: &Area, backend: &str) -> Vec<(&'static str, Value, bool)> {
    let mut policies =
        vec![("read-only", area.read_only(), true), ("restricted", area.restricted_read(), false)];
    if backend == "namespaces" {
        policies.push(("workspace-write", area.workspace_write(), true));
        policies.push(("network", area.networked(), true));
        let denied = area.workspace_and(&[entry(&area.out, "deny")]);
        policies.push(("deny", denied, false));
        let file = area.workspace_and(&[entry(&area.out.join("secret"), "deny")]);
        policies.push(("deny file", file, false));
    }
    policies
}

#[test_case("namespaces")]
#[test_case("landlock")]
#[tokio::test]
async fn nothing_outside_is_read_or_changed(backend: &str) {
    let (_daemon, client) = forced(backend).await;
    let area = Area::new();
    symlink(&area.out, area.w.join("before")).unwrap();
    let before = state(&area);
    let prelude = format!(
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\nO = '{}'\ntry:\n ",
        area.out.display()
    );
    for (policy, context, may_read) in policies(&area, backend) {
        let shell = SHELL.iter().map(|line| area.bash(line, context.clone()));
        let python = PYTHON
            .iter()
            .map(|line| area.python(&format!("{prelude}{line}\nexcept OSError: pass"), context.clone()));
        for (attempt, start) in SHELL.iter().chain(&PYTHON).zip(shell.chain(python)) {
            let start = start.env("OUT", area.out.to_str().unwrap());
            let run = client.run(&start).await;
            let read = run.text().contains("SECRET") || stderr(&run).contains("SECRET");
            let asks_to_read = !attempt.contains("SECRET");
            assert!(
                !read || (may_read && asks_to_read) || attempt.contains("grep"),
                "{policy}: {attempt}: {}",
                run.text()
            );
            assert!(may_read || !read, "{policy}: {attempt}: {}", run.text());
            area.assert_outside_untouched();
            assert_eq!(state(&area), before, "{policy}: {attempt}");
        }
        clear(&area);
    }
}

/// The workspace as it was, for the next policy.
fn clear(area: &Area) {
    for name in area.names() {
        let path = area.w.join(&name);
        if path.is_dir() && !path.is_symlink() {
            std::fs::remove_dir_all(path).unwrap();
        } else {
            std::fs::remove_file(path).unwrap();
        }
    }
    std::fs::write(area.w.join("f"), "inside").unwrap();
    symlink(&area.out, area.w.join("before")).unwrap();
}

/// A hostile run that swaps directories for links the whole time does not make another run's start lead out.
#[tokio::test]
async fn swapped_paths_do_not_lead_a_start_out() {
    let (_daemon, client) = forced("namespaces").await;
    let area = Area::new();
    std::fs::create_dir_all(area.w.join("a/sub")).unwrap();
    let swap = format!(
        "cd {}; while :; do mv a b; ln -s {} a; rm a; mv b a; done 2>/dev/null",
        area.w.display(),
        area.out.display()
    );
    let swapper = area.bash(&swap, area.workspace_write());
    client.start(&swapper).await;
    let policy =
        area.workspace_and(&[entry(&area.w.join("a/sub"), "read"), entry(&area.w.join("a/x"), "deny")]);
    for _ in 0..60 {
        let script = format!(
            "echo x > {0}/a/n; echo x > {0}/a/sub/n; echo x > {1}/n; mkdir {1}/.git; exit 0",
            area.w.display(),
            area.out.display()
        );
        let start = area.bash(&script, policy.clone());
        // A start that met the swap may fail; it must not run with another meaning.
        if client.call("process/start", start.params()).await.is_ok() {
            client.finish(&start.id()).await;
        }
        area.assert_outside_untouched();
    }
    client.ok("process/terminate", serde_json::json!({"processId": swapper.id(), "graceMs": 0})).await;
    client.finish(&swapper.id()).await;
    area.assert_outside_untouched();
}
