#!/bin/sh
# build.sh IMAGE: build the container image with buildah, and without a registry of images.
# Its base is a minimal Debian with Debian's Python, which mmdebstrap makes. The same sources and Debian packages give
# the same layers; SOURCE_DATE_EPOCH replaces the time of the commit.
set -eu
image=$1
top=$(cd "$(dirname "$0")/../.." && pwd)

for program in buildah mmdebstrap python3; do
    command -v "$program" >/dev/null || {
        echo "ringward: $program is not installed; install it first: sudo apt-get install $program" >&2
        exit 1
    }
done
cd "$top"
SOURCE_DATE_EPOCH=$(python3 -c 'from deploy.release.build import epoch; print(epoch())')
version=$(python3 -m deploy.version)
export SOURCE_DATE_EPOCH
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mmdebstrap --quiet --variant=minbase --include=python3-venv,ca-certificates,tzdata \
    --dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/man/*' bookworm "$place/root.tar"
printf 'FROM scratch\nADD root.tar /\n' >"$place/Containerfile"
buildah build --quiet --timestamp "$SOURCE_DATE_EPOCH" --tag "$image-base" "$place"
# The certificate of the package index can be one that only this host trusts.
buildah build --format docker --build-arg "BASE=localhost/$image-base" --build-arg "VERSION=$version" \
    --timestamp "$SOURCE_DATE_EPOCH" --build-arg "SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH" \
    --volume /etc/ssl/certs:/etc/ssl/certs:ro \
    --file "$top/deploy/container/Containerfile" --tag "$image" "$top"
