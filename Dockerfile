# The image: one static binary, no shell, no package manager, not root, nothing that it writes to. `cargo xtask release`
# builds it for amd64 and arm64. The context has the binary of each architecture in `ARCHITECTURE/usr/bin`.
#
#   docker load --input mongoshape-0.2.0-docker-amd64.tar
#   docker run --read-only --cap-drop ALL --volume ./mongoshape.toml:/etc/mongoshape/mongoshape.toml:ro \
#       --publish 127.0.0.1:27018:27018 mongoshape:0.2.0
#
# In the configuration listen.address is "0.0.0.0:27018" then.

FROM scratch
ARG TARGETARCH
ARG VERSION=0.2.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="mongoshape" \
      org.opencontainers.image.description="A MongoDB proxy that stores collections in the bucket or outlier pattern while applications see plain ones" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY ${TARGETARCH}/ /
ENV MONGOSHAPE_CONFIG=/etc/mongoshape/mongoshape.toml
# No user has this number: so Kubernetes' runAsNonRoot can tell that it is not root.
USER 65532:65532
# Applications; the admin address, where the configuration lets others than this container reach it.
EXPOSE 27018 9216
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 CMD ["/usr/bin/mongoshape", "health"]
ENTRYPOINT ["/usr/bin/mongoshape"]
CMD ["serve"]
