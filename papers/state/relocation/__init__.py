"""The relocation of partition groups between machines, message by message.

Source: Liu, Rundensteiner 2005, section 5.1 and figure 13: four sets of actions, eight steps; and of section 6 the two
rules for machines that also push groups to their disks. Watersmeet needs none of it: every task can read every run, so
a relocation is a new owner in the plan of a batch. Here the published protocol runs as a state machine under any order
of events, to see what it needs in order to lose and double nothing.
"""
