//! When this process gets a processor.
#![expect(unsafe_code, reason = "scheduling policies have no safe wrapper")]

/// Whether a keeper that waits for a call may be scheduled behind the process that wakes it (SCHED_BATCH, sched(7)).
///
/// A message by a socket wakes its reader on the sender's processor, and there the reader usually goes first: the host
/// would stand still while its keeper starts the command. A batch process waits until the host has come to its own
/// next wait. For the call itself, and for the command, the policy is the usual one again.
pub struct IdlePolicy {
    /// The policy was the default one. Any other was set on purpose, and stays.
    usual: bool,
}

impl IdlePolicy {
    /// Reads the policy that this process was started with.
    pub fn new() -> IdlePolicy {
        // By number: musl's function answers ENOSYS, since POSIX wants of it what Linux does not do.
        // SAFETY: asks for this process's own policy.
        let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
        IdlePolicy { usual: policy == libc::SCHED_OTHER.into() }
    }

    /// Before waiting for a call.
    pub fn batch(&self) {
        self.take_on(libc::SCHED_BATCH);
    }

    /// A call has come.
    pub fn normal(&self) {
        self.take_on(libc::SCHED_OTHER);
    }

    fn take_on(&self, policy: i32) {
        if self.usual {
            // The kernel's struct sched_param.
            let priority: i32 = 0;
            // SAFETY: a valid struct to read. What a filter refuses costs time only.
            unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) };
        }
    }
}

impl Default for IdlePolicy {
    fn default() -> Self {
        IdlePolicy::new()
    }
}
