//! A small disk that other programs fill.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, dead_code, reason = "tests")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small disk in memory that is taken away at the end.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` where this system does not let the test mount one.
    pub fn mount(at: &Path, size: &str) -> Option<Self> {
        fs::create_dir(at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(at);
        mount.output().is_ok_and(|done| done.status.success()).then(|| Self(at.to_owned()))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn grow(&self, size: &str) {
        let mut mount = Command::new("mount");
        mount.args(["-o", &format!("remount,size={size}")]).arg(&self.0);
        assert!(mount.status().unwrap().success());
    }

    /// Another program fills the disk to its last byte.
    pub fn fill(&self) -> PathBuf {
        let path = self.0.join("ballast");
        let mut file = fs::File::create(&path).unwrap();
        for step in [1 << 20, 4096, 1] {
            let block = vec![7; step];
            while file.write_all(&block).is_ok() {}
        }
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
