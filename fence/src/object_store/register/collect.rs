//! Deletes values that the register does not refer to any more.

use ::object_store::{Error, ObjectStoreExt, path::Path};

use super::{Register, Sent, Snapshot};
use crate::object_store::{outcome::RegisterError, state::State};

impl Register {
    /// Deletes objects of large values that nothing can refer to any more, and returns how many.
    ///
    /// Age proves nothing, because a writer may pause between the upload and its write. The name of
    /// an object has the version that its writer had read. Its write can succeed only while the
    /// register has this version. If objects of the current version are there, the register is written
    /// again first, with the same fence and value: it then has a higher version.
    ///
    /// Any client may call this at any time, without a token.
    ///
    /// # Errors
    /// [`RegisterError`], which says for each reason what to do. Some objects may have been deleted.
    ///
    /// # Cancellation safety
    /// If this future is dropped, some objects may have been deleted. It may be repeated.
    pub async fn collect(&mut self) -> Result<usize, RegisterError> {
        // 1. List the objects, and then read the register: it is not older than the list.
        let objects = self.objects().await?;
        let mut known = self.load().await?;

        // 2. Cut off the writers that have read the current version.
        let mut is_known = true;
        let current = known.version();
        let is_current = |(version, path): &(u64, Path)| {
            *version == current && path.filename() != known.object()
        };
        if let Some(state) = known.state()
            && objects.iter().any(is_current)
        {
            let mut next = State::after(Some(state), state.fence.as_ref(), state.value.clone());
            next.attributes.clone_from(&state.attributes);
            match self.send(&known, &next).await? {
                Sent::Applied | Sent::NeverLands => known = self.load().await?,
                // Those of the current version stay.
                Sent::Unknown(_) => is_known = false,
            }
        }

        // 3. Delete what is older than the register. A writer of it can't succeed any more.
        let deleted = self.delete_older_than(&known, objects).await?;
        self.known = is_known.then_some(known);
        Ok(deleted)
    }

    /// Deletes such objects of earlier versions only, and returns how many. It does not change the register,
    /// so it overtakes no writer.
    ///
    /// # Errors
    /// [`RegisterError`], which says for each reason what to do. Some objects may have been deleted.
    ///
    /// # Cancellation safety
    /// If this future is dropped, some objects may have been deleted. It may be repeated.
    pub async fn collect_earlier(&mut self) -> Result<usize, RegisterError> {
        let objects = self.objects().await?;
        let known = self.load().await?;
        self.delete_older_than(&known, objects).await
    }

    async fn delete_older_than(
        &self,
        known: &Snapshot,
        objects: Vec<(u64, Path)>,
    ) -> Result<usize, RegisterError> {
        let mut deleted = 0;
        for (version, path) in objects {
            if version < known.version() && path.filename() != known.object() {
                match self.store.delete(&path).await {
                    Ok(()) => deleted += 1,
                    // Another collector was faster.
                    Err(Error::NotFound { .. }) => {}
                    Err(source) => return Err(self.store_failed(source)),
                }
            }
        }
        Ok(deleted)
    }

    /// Lists the objects of large values, each with the version in its name.
    async fn objects(&self) -> Result<Vec<(u64, Path)>, RegisterError> {
        let listed = self.store.list_with_delimiter(Some(&self.paths.values)).await;
        let objects = listed.map_err(|source| self.store_failed(source))?.objects;
        let with_versions = objects.into_iter().filter_map(|object| {
            let version = object.location.filename()?.split_once('-')?.0.parse().ok()?;
            Some((version, object.location))
        });
        Ok(with_versions.collect())
    }
}
