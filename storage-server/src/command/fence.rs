//! `fence`: to see, repair and raise fences.

use anyhow::{Context, bail, ensure};
use clap::{Args, Subcommand};
use fence::{Fence, Holder, ResourceName, Token};

use super::{audited::Action, print};
use crate::store::{
    maintenance::{Maintenance, StoredRow, open_maintenance},
    open::DatabaseKind,
};

#[derive(Debug, Subcommand)]
pub(super) enum FenceCommand {
    /// Show a resource's fence.
    Show {
        /// The resource's name.
        resource: ResourceName,
    },
    /// Set a resource's fence. This repairs a row that no server can read.
    Set(Set),
    /// Raise the common fence: every resource rejects all tokens up to it.
    Raise(Raise),
}

#[derive(Debug, Args)]
pub(super) struct Set {
    /// The resource's name.
    resource: ResourceName,

    /// The fence's token: lower ones are rejected.
    #[arg(long)]
    token: Token,

    /// The holder of the token. Without it, no client that has a holder can use the token.
    #[arg(long, default_value = "", hide_default_value = true)]
    holder: Holder,

    /// Lower the fence, or give its token to another holder: late writers are accepted again.
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
pub(super) struct Raise {
    /// Of every resource, also of those that are not there yet.
    #[arg(long, required = true)]
    all: bool,

    /// The highest token that is rejected.
    #[arg(long, value_name = "TOKEN")]
    above: Token,

    /// Lower the common fence: late writers are accepted again.
    #[arg(long)]
    force: bool,
}

impl FenceCommand {
    pub(super) fn action(&self) -> Option<Action> {
        let (command, target, token) = match self {
            Self::Show { .. } => return None,
            Self::Set(Set { resource, token, .. }) => ("fence set", Some(resource), *token),
            Self::Raise(Raise { above, .. }) => ("fence raise", None, *above),
        };
        let target = target.map(|resource| resource.as_str().to_owned());
        Some(Action { command, target, token: Some(token) })
    }

    pub(super) async fn run(self, database_url: &str) -> anyhow::Result<()> {
        if matches!(self, Self::Raise(_))
            && DatabaseKind::from_url(database_url)? == DatabaseKind::ObjectStorage
        {
            bail!(
                "object storage has no common fence, because each resource is changed by itself: raise \
                 each fence with storage-server fence set"
            );
        }
        let mut database = open_maintenance(database_url).await?;
        match self {
            Self::Show { resource } => show(&mut *database, &resource).await,
            Self::Set(set) => set.run(&mut *database).await,
            Self::Raise(raise) => raise.run(&mut *database).await,
        }
    }
}

async fn show(database: &mut dyn Maintenance, resource: &ResourceName) -> anyhow::Result<()> {
    let stored = database.stored(resource).await?;
    print(format_args!("{resource}: {}", describe(stored.as_ref())));
    if let Some(StoredRow { version, size: Some(size), .. }) = &stored {
        print(format_args!("a value of {size} bytes, version {version}"));
    }
    if let Some(Err(reason)) = stored.as_ref().map(StoredRow::value_fence) {
        print(format_args!("the fence of its value is unreadable: {reason}"));
    }
    match stored.as_ref().map(StoredRow::answers) {
        Some(Ok(answers)) if !answers.is_empty() => {
            print(format_args!("answers to numbered writes: {}", answers.len()));
        }
        Some(Err(reason)) => {
            print(format_args!("the answers to its last numbered writes are unreadable: {reason}"));
        }
        _ => {}
    }
    if let Some(common_fence) = database.common_fence().await? {
        print(format_args!(
            "common fence: tokens up to {common_fence} are rejected unless the resource's is as high"
        ));
    }
    Ok(())
}

impl Set {
    async fn run(self, database: &mut dyn Maintenance) -> anyhow::Result<()> {
        let Self { resource, token, holder, force } = self;
        let stored = database.stored(&resource).await?;
        let before = describe(stored.as_ref());
        let fence = Fence { token, holder };
        if !force {
            ensure_not_weaker(&resource, stored.as_ref(), &fence)?;
        }
        let forget = stored.as_ref().map(StoredRow::unreadable).unwrap_or_default();
        let set = database.set_fence(&resource, stored.as_ref(), &fence, forget).await?;
        ensure!(set, "the fence of {resource} has changed meanwhile: nothing was changed");
        print(format_args!("{resource}: {before}"));
        print(format_args!("now: {}", describe_fence(&fence)));
        if forget.value_fence {
            print("the fence of its value was unreadable, and was removed");
        }
        if forget.answers {
            print(
                "the answers to its last numbered writes were unreadable, and were removed: a write \
                 that is repeated under the same token and holder takes effect again",
            );
        }
        if let Some(common_fence) = database.common_fence().await?.filter(|it| *it > token) {
            print(format_args!(
                "the common fence is higher: tokens up to {common_fence} are rejected"
            ));
        }
        Ok(())
    }
}

/// An unreadable row has no fence to weaken, except that its token may be higher.
fn ensure_not_weaker(
    resource: &ResourceName,
    stored: Option<&StoredRow>,
    fence: &Fence,
) -> anyhow::Result<()> {
    let Some(stored) = stored else {
        return Ok(());
    };
    let new = fence.token;
    if let Some(old) = stored.token.filter(|old| *old > new.as_i64()) {
        bail!(
            "the fence of {resource} is at {old}: at {new}, it would accept late writers with lower \
             tokens than that again. Add --force to lower it"
        );
    }
    match stored.fence() {
        Ok(Some(old)) if old.token == new && old.holder != fence.holder => bail!(
            "token {new} of {resource} belongs to {}: two holders could use it. Add --force to give \
             it to another, or set a higher token",
            describe_holder(&old.holder),
        ),
        _ => Ok(()),
    }
}

impl Raise {
    async fn run(self, database: &mut dyn Maintenance) -> anyhow::Result<()> {
        let Self { all: _, above, force } = self;
        let before = database.common_fence().await?;
        if let Some(before) = before.filter(|before| *before > above && !force) {
            bail!(
                "the common fence is at {before}: at {above}, late writers with lower tokens than \
                 that would be accepted again. Add --force to lower it"
            );
        }
        let set = database
            .set_common_fence(before, above)
            .await
            .context("the common fence was not changed")?;
        ensure!(set, "the common fence has changed meanwhile: nothing was changed");
        match before {
            Some(before) => {
                print(format_args!("the common fence was at {before}, and is at {above} now"))
            }
            None => print(format_args!("the common fence is at {above} now")),
        }
        print(format_args!("every resource whose fence is lower rejects tokens up to {above}"));
        Ok(())
    }
}

fn describe(stored: Option<&StoredRow>) -> String {
    match stored.map(StoredRow::fence) {
        None | Some(Ok(None)) => "no fence".to_owned(),
        Some(Ok(Some(fence))) => describe_fence(&fence),
        Some(Err(reason)) => format!("unreadable, because {reason}"),
    }
}

fn describe_fence(fence: &Fence) -> String {
    format!("token {}, {}", fence.token, describe_holder(&fence.holder))
}

/// A holder is the proof of holding, so it is never shown whole.
fn describe_holder(holder: &Holder) -> String {
    if holder.is_empty() { "no holder".to_owned() } else { format!("holder {}", holder.redacted()) }
}
