//! The list of resources.

use ::object_store::Error;
use futures_util::TryStreamExt;

use super::{
    Registers,
    paths::{LONG_NAMES, REGISTER, resource},
};
use crate::name::ResourceName;

impl Registers {
    /// Lists the resources that have a register, in no order, and perhaps some more: those whose register
    /// was deleted by other means, and left its folder.
    ///
    /// The store is asked once for each thousand resources, whichever are wanted.
    ///
    /// # Errors
    /// If the store failed.
    ///
    /// # Cancellation safety
    /// If this future is dropped, nothing has changed.
    pub async fn resources(&self) -> Result<Vec<ResourceName>, Error> {
        let mut names = Vec::new();
        let listed = self.store.list_with_delimiter(Some(&self.prefix)).await?;
        for folder in listed.common_prefixes {
            if folder.filename() != Some(LONG_NAMES) {
                names.extend(folder.filename().and_then(|part| resource(&[part])));
                continue;
            }
            // Long names are folders in folders.
            let mut objects = self.store.list(Some(&folder));
            while let Some(object) = objects.try_next().await? {
                let Some(parts) = object.location.prefix_match(&self.prefix) else { continue };
                let parts: Vec<_> = parts.collect();
                let parts: Vec<_> = parts.iter().map(AsRef::as_ref).collect();
                if let [folder @ .., REGISTER] = &parts[..] {
                    names.extend(resource(folder));
                }
            }
        }
        Ok(names)
    }
}
