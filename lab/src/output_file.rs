//! A file that a command writes for its user.

use std::{
    fs::Permissions,
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use tempfile::NamedTempFile;

/// A file that appears, or is replaced, when it is complete.
#[derive(Debug)]
pub(crate) struct OutputFile {
    path: PathBuf,
    temporary: NamedTempFile,
}

impl OutputFile {
    /// Creates a temporary file beside the file, so that a run starts only if it can be written.
    ///
    /// # Errors
    /// If the path is a folder, or no file can be created beside it.
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        ensure!(!path.is_dir(), "cannot write to `{shown}`: it is a folder");
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        ensure!(
            folder.is_dir(),
            "cannot write to `{shown}`: there is no folder `{}`",
            folder.display()
        );
        let temporary = tempfile::Builder::new()
            .prefix(".lab-")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder)
            // The error itself names the temporary file.
            .map_err(|error| io::Error::from(error.kind()))
            .with_context(|| format!("cannot write to `{shown}`"))?;
        Ok(Self { path: path.to_owned(), temporary })
    }

    /// Writes the content, and gives the file its name.
    ///
    /// # Errors
    /// If the file can't be written or renamed.
    pub(crate) fn save(mut self, content: &str) -> anyhow::Result<()> {
        let shown = self.path.display();
        let cannot_write = || format!("cannot write to `{shown}`");
        self.temporary.write_all(content.as_bytes()).with_context(cannot_write)?;
        self.temporary
            .persist(&self.path)
            .map_err(|error| error.error)
            .with_context(cannot_write)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn file_is_replaced_when_it_is_complete_and_nothing_else_is_left() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("run.html");
        fs::write(&path, "old").unwrap();
        let file = OutputFile::create(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        file.save("new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        drop(OutputFile::create(&path).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn file_in_a_missing_folder_and_a_folder_are_errors_that_name_it() {
        let folder = TempDir::new().unwrap();
        let missing = folder.path().join("none/run.html");
        for (path, why) in
            [(missing.as_path(), "there is no folder"), (folder.path(), "is a folder")]
        {
            let error = format!("{:#}", OutputFile::create(path).unwrap_err());
            assert!(error.contains(&path.display().to_string()), "{error}");
            assert!(error.contains(why), "{error}");
        }
    }
}
