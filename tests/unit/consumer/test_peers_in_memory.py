"""The peers in memory keep the contract of those over HTTP."""

from __future__ import annotations

import pytest

from tests.fakes.peers import InMemoryPeers, PeerNetwork
from tests.peers_contract import Pair, PeersContract, new_end


class TestContract(PeersContract):
    """The contract of all peers."""

    @pytest.fixture
    def pair(self) -> Pair:
        donor, recipient = new_end("a"), new_end("b")
        network = PeerNetwork(hint_stores={"http://a": donor.hint_store, "http://b": recipient.hint_store})
        return Pair(
            donor=donor,
            recipient=recipient,
            peers=InMemoryPeers(network, "http://a"),
            back=InMemoryPeers(network, "http://b"),
            address_of=lambda member: f"http://{member}",
        )
