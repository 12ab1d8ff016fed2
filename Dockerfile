# The storage server and lock-client. compose.yaml runs it; ops/README.md says how.
FROM rust:1.94-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN ops/build /out

FROM debian:bookworm-slim
# For `sslmode=verify-full` to a PostgreSQL whose certificate is of a public authority.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /out/ /usr/local/
COPY ops/run /usr/local/bin/run-storage-server
COPY ops/image.toml /etc/storage-server/server.toml
# A new volume takes the owner of the folder.
RUN useradd --system --uid 8034 --user-group --no-create-home storage-server \
    && install --directory --owner storage-server --group storage-server --mode 0700 \
        /var/lib/storage-server
USER 8034:8034
WORKDIR /var/lib/storage-server
VOLUME /var/lib/storage-server
EXPOSE 8034
STOPSIGNAL SIGTERM
ENTRYPOINT ["run-storage-server"]
