"""What tests of several rooms use; tests import helpers from here, never from each other."""
