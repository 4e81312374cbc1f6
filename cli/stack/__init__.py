"""The local stack: jars, ZooKeeper, Kafka and Baton's services as supervised processes."""
