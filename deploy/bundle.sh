#!/bin/sh
# bundle.sh [FOLDER]: bundle the modules and style sheets of the dashboard into FOLDER/bundle; FOLDER is api/static by
# default. A release needs the bundle (make bundle); running and installing Ringward do not, nor do they need npm. The
# server uses the bundle while the files match those it was made from. PYTHON is a Python that can import Ringward.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
static=$(cd "${1:-$root/api/static}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --no-save --silent esbuild@0.28.2
esbuild=$work/node_modules/.bin/esbuild

rm -rf "$static/bundle"
sed -n 's|^<link rel="stylesheet" href="static/\(.*\)">$|@import "'"$static"'/\1";|p' "$static/index.html" >main.css
"$esbuild" main.css --bundle --minify --outfile="$work/out/main.css" --log-level=warning
# One name for one part: a page that an earlier version served finds the part of the current version.
"$esbuild" "$static/js/main.js" --bundle --minify --format=esm --target=es2022 --splitting --legal-comments=none \
    --chunk-names='[name]' --outdir="$work/out" --log-level=warning
sed -e '/<link rel="modulepreload"/d' -e '/<link rel="stylesheet"/d' \
    -e 's|^<script type="module" src="static/js/main.js">|<link rel="stylesheet" href="static/bundle/main.css">\
<script type="module" src="static/bundle/main.js">|' "$static/index.html" >out/index.html
cd "$root"
"${PYTHON:-python3}" -c 'import sys; from api.resources.pages import digest_of, read; print(digest_of(read(sys.argv[1])))' \
    "$static" >"$work/out/sources.txt"
mv "$work/out" "$static/bundle"
