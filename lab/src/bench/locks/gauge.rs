//! What a handover reads of its server.

/// Reads when all clients wait, and what the server does for them.
pub(super) trait Gauge {
    /// What a server does.
    type Work;

    /// Starts to count.
    async fn start(&mut self) -> anyhow::Result<()>;

    /// Returns the work since the start, without the holders' own requests.
    async fn work(&mut self) -> anyhow::Result<Self::Work>;

    /// Waits until all clients but the holder wait for the lock. The count was started before them.
    async fn wait_for_all(&mut self) -> anyhow::Result<()>;

    /// Waits until the last client that released waits again.
    async fn wait_for_last(&mut self) -> anyhow::Result<()>;
}
