#!/bin/sh
# Rebuild the libraries of the dashboard (api/static/vendor) from their npm packages. Needs npm; running and installing
# Ringward do not. If versions or licences change, update api/static/vendor/LICENSES.txt.
set -eu
out=$(cd "$(dirname "$0")/../api/static/vendor" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --no-save --silent preact@11.2.0 @preact/signals@2.11.4 htm@3.1.1 uplot@1.6.32 \
    cronstrue@3.39.0 esbuild@0.28.2

cat >preact.js <<'MODULE'
export { h, Fragment, render, createContext } from "preact";
export { useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useContext, useErrorBoundary, useId } from "preact/hooks";
export { signal, computed, effect, batch, useSignal, useComputed, useSignalEffect } from "@preact/signals";
import { h } from "preact";
import htm from "htm";
export const html = htm.bind(h);
MODULE
for name in uplot cronstrue; do
    echo "export { default } from \"$name\";" >"$name.js"
done
for name in preact uplot cronstrue; do
    node_modules/@esbuild/linux-*/bin/esbuild "$name.js" --bundle --minify --format=esm --target=es2022 \
        --legal-comments=none --outfile="$out/$name.js"
done
cp node_modules/uplot/dist/uPlot.min.css "$out/uplot.css"
