// What all pages share, as signals: the user, the tasks, the daemon, unread notifications; and the passing time.
import { computed, signal } from "../vendor/preact.js";
import { Refused, get } from "./api.js";

/** null: not known yet; else the answer of /api/auth/status. */
export const me = signal(null);
/** null: not loaded yet; else all tasks and services. */
export const units = signal(null);
/** null: not loaded yet; else the answer of /api/daemon. */
export const daemon = signal(null);
export const unread = signal(0);
/** The last failure to load what is shared; null when all is well. */
export const trouble = signal(null);
/** Milliseconds since the epoch, every second while somebody looks. */
export const now = signal(Date.now());
/** Newest sample of the host, from the events. */
export const sample = signal(null);

setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);

const RANKS = { viewer: 0, operator: 1, cloud: 1, admin: 2 };
export const mayOperate = computed(() => (RANKS[me.value?.role] ?? -1) >= 1);
/** A token for some tasks only: what concerns the whole daemon is not for it. */
export const isLimited = computed(() => Boolean(me.value?.tasks));
export const isAdmin = computed(() => me.value?.role === "admin" && !isLimited.value);

/** The task or service of that name; undefined when there is none. */
export const unitNamed = (name) => units.value?.find((unit) => unit.name === name);

async function load(what) {
  try {
    await what();
    trouble.value = null;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (error.status !== 401 && error.status !== 403) trouble.value = error.message;
  }
}

export const loadUnits = () =>
  load(async () => {
    units.value = (await get("api/tasks")).items;
  });

export const loadDaemon = () =>
  load(async () => {
    daemon.value = isLimited.value ? null : await get("api/daemon");
  });

export const loadUnread = () =>
  load(async () => {
    unread.value = isLimited.value ? 0 : (await get("api/notifications/unreadCount")).count;
  });

export const loadAll = () => Promise.all([loadUnits(), loadDaemon(), loadUnread()]);

/** Call `work` soon, and not more often than every `everyMs`, however often it is asked for. */
export function throttle(work, everyMs) {
  let timer = null;
  let last = 0;
  return () => {
    if (timer !== null) return;
    timer = setTimeout(
      () => {
        timer = null;
        last = Date.now();
        work();
      },
      Math.max(50, last + everyMs - Date.now()),
    );
  };
}
