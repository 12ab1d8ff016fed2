//! Large values that were replaced.

use std::time::Duration;

use tokio::{sync::Semaphore, time::sleep};

use super::{flawed::Request, *};

/// The second write leaves the first value behind, and the server looks for others. A third write is on its
/// way by then, and its value is there.
#[tokio::test(start_paused = true)]
async fn search_for_leftovers_overtakes_no_write() {
    let world = World::new();
    let large = |letter: &str| letter.repeat(20_000);
    let gate = Arc::new(Semaphore::new(0));
    let (at_the_gate, cleanup) = (gate.clone(), world.store.cleanup.clone());
    let registers = Arc::new(Semaphore::new(0));
    world.flawed.before(move |request, path| {
        let (gate, cleanup, registers) = (at_the_gate.clone(), cleanup.clone(), registers.clone());
        let is_register = path.as_ref().ends_with("register");
        async move {
            match request {
                // The search waits for the third value.
                Request::List => drop(gate.acquire().await.unwrap()),
                Request::Put if is_register => {
                    registers.add_permits(1);
                    if registers.available_permits() == 3 {
                        gate.add_permits(1);
                        while !cleanup.is_empty() {
                            sleep(Duration::from_millis(1)).await;
                        }
                    }
                }
                Request::Put | Request::Get => {}
            }
            Ok(())
        }
    });
    // What a crash has left.
    let lost = Path::from("folder/r/fence.values/00000000000000000000-lost");
    world.flawed.memory.put(&lost, PutPayload::from("lost")).await.unwrap();
    for letter in ["a", "b", "c"] {
        world.write("r", 1, &large(letter)).await.unwrap();
    }
    assert_eq!(world.flawed.requests(Request::List, "fence.values"), 1, "there was a search");
    assert_eq!(world.flawed.requests(Request::Put, "fence.values"), 3, "each is uploaded once");
    assert_eq!(world.flawed.requests(Request::Put, "fence.register"), 3);
    while !world.store.cleanup.is_empty() {
        sleep(Duration::from_millis(1)).await;
    }
    let folder = Path::from("folder/r/fence.values");
    let left = world.flawed.memory.list_with_delimiter(Some(&folder)).await.unwrap().objects;
    assert_eq!(left.len(), 1, "{left:?}");
}
