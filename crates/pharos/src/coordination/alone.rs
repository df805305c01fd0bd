//! A cluster of one node, which needs nobody to tell it who is in it.

use std::time::Duration;

use tokio::time::sleep_until;

use super::epoch::{Epochs, Rotation};
use super::{Coordination, Post};

/// One node; its epochs live in memory.
#[derive(Debug)]
pub struct Alone {
    pub key_rotation: Duration,
}

impl Coordination for Alone {
    async fn run(self, mut post: Post) {
        let mut rotation = Rotation::new(self.key_rotation);
        let mut epochs = Epochs::unagreed().agreed();
        post.set_reached(true);
        while !post.is_leaving() {
            post.publish(post.number() + 1, Vec::new(), epochs);
            tokio::select! {
                () = post.changed() => {}
                () = sleep_until(rotation.due(&epochs)) => epochs = epochs.next(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use cluster::Standing;

    use super::super::Coordinator;
    use super::super::record::member_for_tests;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_node_alone_is_its_own_cluster_and_rotates_its_key() {
        let own = member_for_tests("a", 1);
        let period = Duration::from_secs(3600);
        let coordinator = Coordinator::run(Alone { key_rotation: period }, own.clone());
        let mut membership = coordinator.membership();
        let first = membership.wait_for(|known| known.view.number() > 0).await.unwrap().clone();
        assert_eq!(first.view.members(), std::slice::from_ref(&own));
        assert_eq!(first.epochs.current.number, 1);

        coordinator.set_standing(Standing::Draining);
        let drained = membership.wait_for(|known| known.view.number() > 1).await.unwrap().clone();
        assert_eq!(drained.view.members()[0].standing, Standing::Draining);
        assert_eq!(drained.epochs, first.epochs);

        tokio::time::advance(period).await;
        let second =
            membership.wait_for(|known| known.epochs.current.number == 2).await.unwrap().clone();
        assert_eq!(second.epochs.previous, Some(first.epochs.current));
        assert!(coordinator.is_reached());
        coordinator.leave().await;
    }
}
