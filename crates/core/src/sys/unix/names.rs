//! Signals and errors by their names, for code above `sys`, which does not name the system's library.

pub use libc::{
    E2BIG, EAGAIN, EBADF, ECHILD, EINVAL, EMFILE, ENAMETOOLONG, ENFILE, ENOBUFS, ENOENT, ENOMEM, ENOTDIR,
    ENOTSUP, EPERM, EPIPE, ESRCH, ETIMEDOUT, ETOOMANYREFS,
};
pub use libc::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGPIPE, SIGQUIT, SIGSTOP, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU,
    SIGWINCH,
};
