# Two images from one build, which docker, podman and buildah build alike:
#
#     docker build -t exec-server .                          the daemon, with BusyBox and nothing else; 30 MB at most
#     docker build -t exec-server:binary --target binary .   one static file, for `COPY --from` into images of your own
#
# docs/deploying.md says how they are run, and with what taken away. Another base with Rust 1.95, a C compiler and
# Debian's packages: --build-arg BUILD_IMAGE=...
ARG BUILD_IMAGE=docker.io/library/rust:1.95-bookworm

FROM ${BUILD_IMAGE} AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends binutils busybox-static ca-certificates gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# What `exec-server --version` says; the build does not see the repository.
ARG COMMIT=
RUN EXEC_SERVER_COMMIT="$COMMIT" scripts/build-static /out/exec-server

# What a server needs around it: a shell, certificates, and directories in which any user can work: which one it is, is
# said when the container is started. There is one user in it then, so open directories are open to nobody else; and what
# is mounted there in memory takes their mode.
RUN install -d /out/root/bin /out/root/etc/ssl/certs /out/root/usr/bin \
    && install -d -m 1777 /out/root/tmp /out/root/var/tmp /out/root/work /out/root/var/lib/exec-server \
    && cp "$(command -v busybox)" /out/root/bin/busybox \
    && for name in $(busybox --list); do [ "$name" = busybox ] || ln -s busybox "/out/root/bin/$name"; done \
    && cp /etc/ssl/certs/ca-certificates.crt /out/root/etc/ssl/certs/ \
    && cp /out/exec-server /out/root/usr/bin/exec-server

FROM scratch AS binary
COPY --from=build /out/exec-server /exec-server
ENTRYPOINT ["/exec-server"]

FROM scratch AS daemon
COPY --from=build /out/root/ /
ENV PATH=/usr/bin:/bin \
    SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
    EXEC_SERVER_SERVER_LISTEN=0.0.0.0:8765 \
    EXEC_SERVER_SERVER_STATE_DIR=/var/lib/exec-server
USER 65532:0
WORKDIR /work
EXPOSE 8765
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s CMD ["exec-server", "health"]
# It is made to be the first process of a container: it reaps orphans, and SIGTERM ends what it has started.
STOPSIGNAL SIGTERM
ENTRYPOINT ["exec-server"]
