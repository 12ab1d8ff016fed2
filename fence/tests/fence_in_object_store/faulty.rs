//! A store between which and its client requests and answers are lost, repeated and late, while rivals
//! act.

use std::{
    fmt, mem,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use fence::object_store::Registers;
use futures_util::stream::BoxStream;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, path::Path,
};

use super::{
    answers::error_after,
    choices::Choices,
    offer,
    recorded::{Recorded, parts},
};

/// How many faults and how many acts of rivals a run has at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) faults: usize,
    pub(super) rivals: usize,
}

/// What a rival does between two requests of the client, through no faults.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rival {
    /// Writes with a higher token.
    Higher,
    /// Writes twice with a higher token.
    HigherTwice,
    /// Writes with a higher token until the register has forgotten the client's write.
    HigherOften,
    /// Writes with the client's own token and holder, from another process.
    Twin,
    /// Writes with a lower token, which the fence may have rejected.
    Lower,
    /// Collects unreferenced values.
    Collector,
    /// Deletes all unreferenced values, as if they were too old to be still in use.
    CollectorByAge,
}

#[derive(Debug)]
pub(super) struct Faulty {
    pub(super) recorded: Recorded,
    pub(super) rivals: &'static [Rival],
    choices: Mutex<Choices>,
    left: Mutex<Limits>,
    limits: Limits,
    late: Mutex<Vec<(Path, PutPayload, PutOptions)>>,
    /// The ids of the writes that the client has sent, perhaps several times.
    sent: Mutex<Vec<String>>,
}

impl Faulty {
    pub(super) fn new(choices: Choices, limits: Limits, rivals: &'static [Rival]) -> Arc<Self> {
        let choices = Mutex::new(choices);
        let left = Mutex::new(limits);
        let (recorded, late, sent) = Default::default();
        Arc::new(Self { recorded, rivals, choices, left, limits, late, sent })
    }

    /// Returns the choices of this run.
    pub(super) fn choices(&self) -> Choices {
        self.choices.lock().unwrap().clone()
    }

    /// Returns the ids of the writes that the client has sent since this was last called.
    pub(super) fn take_sent(&self) -> Vec<String> {
        mem::take(&mut *self.sent.lock().unwrap())
    }

    /// Returns how many faults and acts of rivals there were.
    pub(super) fn used(&self) -> Limits {
        let left = *self.left.lock().unwrap();
        Limits {
            faults: self.limits.faults - left.faults,
            rivals: self.limits.rivals - left.rivals,
        }
    }

    /// Delivers every request that is still under way.
    pub(super) async fn deliver_late_requests(&self) {
        let late = mem::take(&mut *self.late.lock().unwrap());
        for (location, payload, options) in late {
            // Its answer reaches nobody.
            let _ = self.recorded.put_opts(&location, payload, options).await;
        }
    }

    fn choose(&self, count: usize) -> usize {
        self.choices.lock().unwrap().choose(count)
    }

    fn fault(&self, count: usize) -> usize {
        if self.left.lock().unwrap().faults == 0 {
            return 0;
        }
        let chosen = self.choose(count + 1);
        self.left.lock().unwrap().faults -= usize::from(chosen > 0);
        chosen
    }

    /// Lets the world go on before the client's next request arrives.
    async fn go_on(&self) {
        if !self.late.lock().unwrap().is_empty() && self.choose(2) == 1 {
            self.deliver_late_requests().await;
        }
        while self.left.lock().unwrap().rivals > 0 {
            let chosen = self.choose(self.rivals.len() + 1);
            let Some(rival) = chosen.checked_sub(1) else {
                return;
            };
            self.left.lock().unwrap().rivals -= 1;
            self.act(self.rivals[rival]).await;
        }
    }

    async fn act(&self, rival: Rival) {
        let registers = Registers::new(Arc::new(self.recorded.clone()), Path::ROOT);
        let mut register = registers.register(&"r".parse().unwrap());
        let (number, holder, writes) = match rival {
            Rival::Higher => (35, "b", 1),
            Rival::HigherTwice => (35, "b", 2),
            Rival::HigherOften => (35, "b", 17),
            Rival::Twin => (34, "a", 1),
            Rival::Lower => (33, "c", 1),
            Rival::Collector => {
                register.collect().await.unwrap();
                return;
            }
            Rival::CollectorByAge => return self.delete_unreferenced_values().await,
        };
        for _ in 0..writes {
            let _ = register.write(&offer(number, holder), "rival".into()).await.unwrap();
        }
    }

    async fn delete_unreferenced_values(&self) {
        use object_store::ObjectStoreExt;
        let store = &self.recorded.store;
        let register = match store.get(&Path::from("r/fence.register")).await {
            Ok(register) => register.bytes().await.unwrap().to_vec(),
            Err(_) => Vec::new(),
        };
        let register = String::from_utf8(register).unwrap();
        let values = store.list_with_delimiter(Some(&Path::from("r/fence.values"))).await.unwrap();
        for value in values.objects {
            if !register.contains(value.location.filename().unwrap()) {
                store.delete(&value.location).await.unwrap();
            }
        }
    }
}

fn lost() -> Error {
    Error::Generic { store: "Faulty", source: "the connection was lost".into() }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        if location.filename() == Some("fence.register") {
            let (header, _) = parts(&payload);
            self.sent.lock().unwrap().push(header["write_id"].as_str().unwrap().to_owned());
        }
        self.go_on().await;
        let put = || self.recorded.put_opts(location, payload.clone(), options.clone());
        match self.fault(6) {
            0 => put().await,
            // The request is lost.
            1 => Err(lost()),
            // The answer is lost.
            2 => put().await.and(Err(lost())),
            // The answer is lost, rivals act, and the client of the store repeats the request.
            3 => {
                let _ = put().await;
                self.go_on().await;
                put().await
            }
            // The request arrives later, if at all.
            4 => {
                let late = (location.clone(), payload.clone(), options.clone());
                self.late.lock().unwrap().push(late);
                Err(lost())
            }
            // The store has another request for the same object under way.
            5 => Err(error_after(409).await),
            // The store takes no more writes at this moment.
            _ => Err(error_after(429).await),
        }
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        unreachable!("a register is never sent in parts")
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.go_on().await;
        match self.fault(1) {
            0 => self.recorded.get_opts(location, options).await,
            _ => Err(lost()),
        }
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.recorded.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.recorded.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.go_on().await;
        self.recorded.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.recorded.copy_opts(from, to, options).await
    }
}
