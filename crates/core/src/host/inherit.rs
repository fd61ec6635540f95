//! Descriptors that an environment names: a program that is replaced must pass them on, although they may be
//! close-on-exec (Node sets that on every descriptor it was given).

/// The descriptors named by NODE_CHANNEL_FD, LISTEN_FDS (sd_listen_fds(3)) and make's jobserver.
pub fn named(env: &[String]) -> Vec<i32> {
    let mut found = Vec::new();
    let mut add = |text: &str| found.extend(text.parse::<i32>().ok().filter(|&fd| fd > 2));
    for variable in env {
        match variable.split_once('=') {
            Some(("NODE_CHANNEL_FD", fd)) => add(fd),
            Some(("LISTEN_FDS", count)) => {
                let count = count.parse::<i32>().unwrap_or(0).clamp(0, 1024);
                (3..3 + count).for_each(|fd| add(&fd.to_string()));
            }
            Some(("MAKEFLAGS", flags)) => {
                for flag in flags.split_ascii_whitespace() {
                    let pair = flag
                        .strip_prefix("--jobserver-auth=")
                        .or_else(|| flag.strip_prefix("--jobserver-fds="));
                    pair.into_iter().flat_map(|pair| pair.split(',')).for_each(&mut add);
                }
            }
            _ => (),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_descriptors_and_nothing_else() {
        let env =
            ["NODE_CHANNEL_FD=7", "LISTEN_FDS=2", "MAKEFLAGS=w -j4 --jobserver-auth=8,9", "LISTEN_PID=12"];
        assert_eq!(named(&env.map(String::from)), [7, 3, 4, 8, 9]);
        let wrong = [
            "NODE_CHANNEL_FD=x",
            "LISTEN_FDS=-1",
            "MAKEFLAGS=--jobserver-auth=fifo:/tmp/x",
            "NODE_CHANNEL_FD=1",
        ];
        assert_eq!(named(&wrong.map(String::from)), [0; 0]);
    }
}
