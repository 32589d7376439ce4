"""Networks and operators that nobody here chose: are they built, right and fast?"""
