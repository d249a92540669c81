// Classification of a log line: its level, whether it belongs to a stack trace, and whether it is JSON.
import { plain } from "./escapes.js";

/** Levels from the worst on, each with the letter of the gutter. */
export const LEVELS = { error: "E", warn: "W", info: "I", debug: "D" };
const RANK = Object.keys(LEVELS);
const NAMES = {
  error: ["error", "err", "fatal", "critical", "crit", "panic", "emerg", "emergency", "alert", "severe"],
  warn: ["warn", "warning"],
  info: ["info", "notice", "information"],
  debug: ["debug", "trace", "verbose", "fine"],
};
const BY_NAME = new Map(Object.entries(NAMES).flatMap(([level, names]) => names.map((name) => [name, level])));
const ANY = [...BY_NAME.keys()].join("|");
const HEAD = 120; // characters of a line in which programs write a level
const WORD = new RegExp(`(?:^|[\\s\\[(<|:])(${ANY.toUpperCase()})(?=$|[\\s\\])>|:,])`);
const LOGFMT = new RegExp(`\\b(?:level|lvl|severity)["']?\\s*[=:]\\s*["']?(${ANY})\\b`, "i");
const BRACKETS = new RegExp(`^.{0,60}?[\\[<(](${ANY})[\\])>]`, "i");
/** As compilers and command lines print it, "main.c:3:5: error: …", "pg_dump: warning: …". */
const AFTER_NAME = new RegExp(`^[^\\s:]+(?::\\d+)*: (?:fatal )?(${ANY}): `, "i");
const BEGIN = new RegExp(`^(${ANY}):\\s`, "i");
const GLOG = /^([EWIF])\d{4} \d\d:\d\d/;
const GLOG_LEVELS = { E: "error", F: "error", W: "warn", I: "info" };
const KEYS = ["level", "severity", "lvl", "levelname", "log.level", "@l"];
const EXCEPTION = /^(?:Exception in thread |Caused by: )?(?:[\w$]+\.)*[A-Z][\w$]*(?:Error|Exception|Failure)\b(?:: |$)/;
const FRAME = /^\s+(?:at\s\S|File ".*", line \d|\.\.\. \d+ (?:more|common))|^\t\S+\.go:\d+|^goroutine \d+ \[/;
const TRACEBACK = /^(?:Traceback \(most recent call last\)|During handling of the above|Caused by: )/;

/** The object that a line is in JSON; null for any other text. */
export function objectOf(text) {
  if (text.charCodeAt(0) !== 123 || !text.trimEnd().endsWith("}")) return null;
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Numbers as pino and bunyan have them. */
const ofNumber = (value) => (value >= 50 ? "error" : value >= 40 ? "warn" : value >= 30 ? "info" : "debug");

function ofObject(found) {
  for (const key of KEYS) {
    const value = found[key];
    if (typeof value === "number") return ofNumber(value);
    if (typeof value === "string") return BY_NAME.get(value.toLowerCase()) ?? null;
  }
  return null;
}

function levelOfText(full) {
  const text = plain(full.slice(0, 4 * HEAD)).slice(0, HEAD);
  if (text.charCodeAt(0) === 123) {
    const found = objectOf(plain(full));
    if (found) return ofObject(found);
  }
  const glog = GLOG.exec(text);
  if (glog) return GLOG_LEVELS[glog[1]];
  const named = (LOGFMT.exec(text) ?? WORD.exec(text) ?? BEGIN.exec(text) ?? AFTER_NAME.exec(text) ?? BRACKETS.exec(text))?.[1];
  if (named) return BY_NAME.get(named.toLowerCase());
  return EXCEPTION.test(text) || TRACEBACK.test(text) || FRAME.test(text) ? "error" : null;
}

/** The level of a line; null when it names none. Found once. */
export function levelOf(line) {
  if (line.level === undefined) line.level = levelOfText(line.text);
  return line.level;
}

/** Whether a line has the level, or a worse one. */
export function isAtLeast(line, least) {
  const level = levelOf(line);
  return level !== null && RANK.indexOf(level) <= RANK.indexOf(least);
}

/** Note the place of a line in a stack trace: `frame` from 0; undefined outside. `before`: the line before it. */
export function placeInTrace(line, before) {
  const text = line.text;
  const follows = before?.n === line.n - 1 && before.stream === line.stream && before.frame !== undefined;
  const frame = FRAME.test(text) || (follows && /^\s+\S/.test(text));
  line.frame = frame ? (follows ? before.frame + 1 : 0) : undefined;
  line.trace = frame ? (follows ? before.trace : line.n) : undefined;
  if (frame && levelOf(line) === null) line.level = "error";
}
