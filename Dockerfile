# mongoshape alone in a small image: no shell, no package manager, not root, nothing that it writes to.
#
#   docker build --build-arg REVISION="$(git rev-parse HEAD)" --tag mongoshape:0.1.0 .
#   docker run --read-only --cap-drop ALL --volume ./mongoshape.toml:/etc/mongoshape/mongoshape.toml:ro \
#       --publish 127.0.0.1:27018:27018 mongoshape:0.1.0
#
# In the configuration listen.address is "0.0.0.0:27018" then.

FROM rust:1.95.0-bookworm AS build
WORKDIR /build
# What .dockerignore lets through: the sources of the binary, and of the workspace what Cargo asks for.
COPY . .
# Caches are kept between builds, and are in no layer.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/build/target \
    cargo build --release --locked --package mongoshape --bin mongoshape \
    && install -D target/release/mongoshape /image/usr/bin/mongoshape \
    && install -D --mode=644 LICENSE /image/usr/share/doc/mongoshape/LICENSE

# glibc, libgcc and the system's certificate authorities, of the same Debian as above.
FROM gcr.io/distroless/cc-debian12:nonroot
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="mongoshape" \
      org.opencontainers.image.description="A MongoDB proxy that stores collections in the bucket or outlier pattern while applications see plain ones" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /image/ /
ENV MONGOSHAPE_CONFIG=/etc/mongoshape/mongoshape.toml
# The image's user `nonroot`, as a number: so Kubernetes' runAsNonRoot can tell.
USER 65532:65532
# Applications; the admin address, where the configuration lets others than this container reach it.
EXPOSE 27018 9216
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 CMD ["/usr/bin/mongoshape", "health"]
ENTRYPOINT ["/usr/bin/mongoshape"]
CMD ["serve"]
