//! `forget`: the end of resources, fences included.

use anyhow::bail;
use clap::{Args, builder::NonEmptyStringValueParser};

use super::{audited::Action, print};
use crate::store::{
    maintenance::{Counted, delete_all, names_with_prefix, open_maintenance},
    open::DatabaseKind,
};

#[derive(Debug, Args)]
pub(super) struct Forget {
    /// The beginning of the resources' names.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    prefix: String,

    /// Do it. Without this, only what would be done is printed.
    #[arg(long)]
    yes: bool,
}

impl Forget {
    pub(super) fn action(&self) -> Option<Action> {
        let target = Some(self.prefix.clone());
        self.yes.then_some(Action { command: "forget", target, token: None })
    }

    pub(super) async fn run(self, database_url: &str) -> anyhow::Result<()> {
        let Self { prefix, yes } = self;
        if DatabaseKind::from_url(database_url)? == DatabaseKind::ObjectStorage {
            bail!(
                "in object storage, stop all servers and delete the folders of the resources with the \
                 store's own tools"
            );
        }
        let mut database = open_maintenance(database_url).await?;
        let names = names_with_prefix(&prefix);
        let Counted { count, first, last } = database.count(&names).await?;
        let (Some(first), Some(last)) = (first, last) else {
            print(format_args!("no resource has a name that begins with {prefix:?}"));
            return Ok(());
        };
        print(format_args!("{count} resources, from {first:?} to {last:?}"));
        print(
            "Their values, versions and fences will be gone. A client that still has an old token for \
             one of them can write it again, and nothing rejects it. To keep such clients out, raise \
             the common fence of the whole database above their tokens first: storage-server fence raise.",
        );
        if !yes {
            bail!("nothing was deleted: add --yes to delete them");
        }
        let deleted = delete_all(&mut *database, &names).await?;
        print(format_args!("{deleted} resources were deleted"));
        Ok(())
    }
}
