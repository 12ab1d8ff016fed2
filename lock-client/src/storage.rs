//! A client of the storage server, which checks tokens.
//!
//! [`FencedResource`] is a resource that is used under a lease. It handles rejections and unknown
//! outcomes correctly. [`Repeatable`] is a single change that is sent until its outcome is known, and
//! [`Storage`] sends each request once. There, a rejection is not an error but an
//! [`Answer`]: the storage has decided, and nothing was changed. An error says whether anything may
//! have happened. After [`StorageError::Unknown`], a write may still be carried out.

mod answer;
pub(crate) mod claim;
mod client;
mod error;
mod fenced_resource;
mod repeatable;
pub(crate) mod server_url;
mod wire;

pub use self::{
    answer::{Answer, Value},
    client::{InvalidStorageSetting, Storage},
    error::{FencedError, StorageError, StorageRequestError},
    fenced_resource::FencedResource,
    repeatable::Repeatable,
};
